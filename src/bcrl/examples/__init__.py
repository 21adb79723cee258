"""Worked examples on real data. They use the package as any user does; nothing in it knows of them."""
