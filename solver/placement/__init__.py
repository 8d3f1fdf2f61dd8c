"""Expert placement: which logical expert, and which copies of it, live on which rank."""
