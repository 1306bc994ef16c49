"""Every write of the inbox. Services own transactions; callers make one call each."""
