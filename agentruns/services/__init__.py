"""Every write. Services own transactions; callers make one call each."""
