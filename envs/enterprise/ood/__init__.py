"""The out-of-distribution suite: other apps, industries, people, jobs and attacks than the office suite."""
