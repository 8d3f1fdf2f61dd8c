"""Whether a plan is right, and whether its stated bound is proven."""
