"""The load client behind `headway bench`. It talks HTTP only and knows nothing of the server's inside."""
