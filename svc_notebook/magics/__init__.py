"""`%%svc` and `%svc`: options, commands, help, completion and defaults."""
