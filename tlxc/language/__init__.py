"""`tl` and `tlx`: what a kernel author writes."""
