"""What a composition is made of. Nothing here touches the database."""
