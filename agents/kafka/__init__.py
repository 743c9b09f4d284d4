"""Kafka: clients, topics, batches of records, transactional producers, and the registry topic."""
