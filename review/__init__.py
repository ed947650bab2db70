"""What a pull request changes in every committed stack, without secrets, state or hosts (`make pr-check`)."""
