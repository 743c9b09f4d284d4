"""`hatcast cluster live`: K-means in rounds, with devices and trusted users.

The proof: docs/proofs.md, "Clusterings with devices".

state      public parameters, and the state file: of the plan, and of each round its bytes and its noisy numbers
exchange   rounds out, answers in
charge     the ledger's charge of the trusted users
rounds     the iterations; the only module that draws noise
run        all of it, with the trusted users' vectors
"""
