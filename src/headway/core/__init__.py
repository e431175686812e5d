"""The pure scheduler: `handle(events, now) -> effects`. Standard library only, no clock, no I/O."""
