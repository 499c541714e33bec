"""What builds the product for others: the tree of a slot, that of a package, libraries of other processors, bundles."""
