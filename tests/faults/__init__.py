"""Real processes killed, frozen and stopped; brokers and databases taken away."""
