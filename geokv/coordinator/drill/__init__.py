"""Drills: a stream of requests, faults on a timeline, and a history that can be judged alone."""
