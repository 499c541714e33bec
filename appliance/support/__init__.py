"""The support bundle: what an engineer asks for, without what nobody else may know."""
