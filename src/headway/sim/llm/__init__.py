"""The planner of a language model's steps in virtual time: the very object that an engine has, under step times that
are made up from published figures, with arrivals from traces of real traffic or invented ones."""
