"""Small programs that a newcomer runs first. ``cutline demo`` starts them."""
