-- Commit one answer to a query over days, or find the one that is stored already.    [decisions/0014, 0027]
-- KEYS  1 releases, 2 published (of one policy and the date that stores the answer), 3 ledger (of the date),
--       4 recovery, 5 total, 6 successors, 7 last dates, 8 dates, 9 sequences, 10 sealed (of the domain), 11 unsealed
--       dates (of the policy), then the ledger of each of the period's dates
-- ARGV  1 release_id, 2 policy name, 3 the date that stores it, 4 the limit of a day (1e-9), 5 the limit of all days
--       ('' for none), 6 7 the record before and after its seq (nothing after: it has no seq), 8 9 the same if some day
--       has no room for the query, 10 the recovery's token, 11 the policy that this one replaces ('' for none), 12 this
--       one as its next policy, 13 14 the commit sequence: its field and the value written last, 15 the number of
--       the domain's commits that this worker knows, 16 query, 17 number of places that a user can be in, 18 epsilon of
--       each place (1e-9), then the dates
-- Returns as commit.lua. The charge is the query's reservation on each of its days; days without one get it here.
local keys = {
  releases = KEYS[1], published = KEYS[2], ledger = KEYS[3], recovery = KEYS[4], successors = KEYS[6],
  last = KEYS[7], dates = KEYS[8], sequences = KEYS[9], sealed = KEYS[10], unsealed = KEYS[11],
}
local id, name, date = ARGV[1], ARGV[2], ARGV[3]
local answer = reject_or_find(keys, id, name, date, ARGV[10], ARGV[11], ARGV[12], ARGV[13], ARGV[14], ARGV[15])
if answer then return answer end

local head, tail = ARGV[6], ARGV[7]
for i = 12, #KEYS do
  if reserve(KEYS[i], KEYS[5], name, ARGV[16], ARGV[17], ARGV[18], ARGV[4], ARGV[5]) == 1 then
    increase(KEYS[i], 'sequence', 1)
    add_member(KEYS[8], ARGV[i + 7])
  end
  if places_of(KEYS[i], name, ARGV[16]) == 0 then head, tail = ARGV[8], ARGV[9] end
end
return write_record(keys, id, name, date, head, tail, ARGV[13])
