"""Pages. Each makes one domain call and posts, redirects, gets."""
