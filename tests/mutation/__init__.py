"""`make mutate-policies`: whether a test notices when a condition of a rule is gone."""
