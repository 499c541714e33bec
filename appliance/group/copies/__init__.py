"""The log on its way to other members: what the leader sends, what a follower takes, what is missing and since when."""
