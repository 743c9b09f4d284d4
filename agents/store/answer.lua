-- Commit one answer to a query over days, or find the one that is there already.    [design 4; decisions/0014]
-- KEYS  1 releases, 2 published, 3 ledger (of one domain and the date it is kept under), 4 proof, 5 total, 6 successors,
--       7 last dates, 8 dates (of the domain), then the ledger of each of the period's dates
-- ARGV  1 release_id, 2 policy name, 3 the date it is kept under, 4 the limit of a day (1e-9), 5 that of all days ('' for
--       none), 6 7 the record before and after its seq (nothing after: it has no seq), 8 9 the same where some day has no
--       room for the query, 10 the proof's token, 11 the policy that this one replaces ('' for none), 12 this one as its
--       successor, 13 query, 14 in how many places a user can be, 15 its epsilon there (1e-9), then the dates
-- Returns as commit.lua. The charge is what the query has reserved on each of its days, and is so here at the latest.
local keys = {
  releases = KEYS[1], published = KEYS[2], ledger = KEYS[3], proof = KEYS[4], successors = KEYS[6],
  last = KEYS[7], dates = KEYS[8],
}
local id, name, date = ARGV[1], ARGV[2], ARGV[3]
local answer = decided(keys, id, name, date, ARGV[10], ARGV[11], ARGV[12])
if answer then return answer end

local head, tail = ARGV[6], ARGV[7]
for i = 9, #KEYS do
  if reserve(KEYS[i], KEYS[5], name, ARGV[13], ARGV[14], ARGV[15], ARGV[4], ARGV[5]) == 1 then
    increase(KEYS[i], 'sequence', 1)
    join(KEYS[8], ARGV[i + 7])
  end
  if places_of(KEYS[i], name, ARGV[13]) == 0 then head, tail = ARGV[8], ARGV[9] end
end
return keep(keys, id, name, date, head, tail)
