"""What a query says: logical nodes, expressions, schemas, properties, rewrites, explain."""
