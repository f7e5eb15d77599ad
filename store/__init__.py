"""The lab's database: schema, the recorder (its one writer), queries, export, data frames for notebooks."""
