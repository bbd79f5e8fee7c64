"""Everything analytic: model architectures, engine steps, requests, strategies, expected ledgers.

Start with `request` (how a request becomes passes), `step` (what a pass costs), `protocol` and `strategies` (what is
asked), then `expect` (the exact expectation).
"""
