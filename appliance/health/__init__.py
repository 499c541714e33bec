"""How the box is: conditions, verdict, doctor."""
