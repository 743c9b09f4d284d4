-- Commit one release and its charge, or find the release that is stored already.    [decisions/0027]
-- KEYS  1 releases, 2 published (of one policy and date), 3 ledger (of the date), 4 costs, 5 levels (of the policy too),
--       6 dates, 7 recovery, 8 total, 9 successors, 10 last dates, 11 sequences, 12 sealed (of the domain),
--       13 unsealed dates (of the policy); of a running sum also 14 states, 15 states before (of the policy and horizon),
--       16 horizons (of the policy)
-- ARGV  1 release_id, 2 policy name, 3 date, 4 cell/slot, 5 charge (1e-9), 6 cap K, 7 the day's limit (1e-9),
--       8 the limit of all days ('' for none), 9 10 the record before and after its seq (nothing after: it has no seq),
--       11 12 the same for an exhausted budget, 13 the recovery's token, 14 fineness of its noise, 15 the policy that
--       this one replaces ('' for none), 16 this one as its next policy, 17 18 the commit sequence: its field and the
--       value written last, 19 the number of the domain's commits that this worker knows; then for each query over days
--       that reads this day: its name, number of places that a user can be in, epsilon of each place (1e-9), 'spent' if
--       that is spent already, 'required' if without it the budget is exhausted, else ''; of a running sum last: first
--       date of the horizon, cell, SHA-1 of the cell's state before ('' for none), its state after ('' for none), and
--       the status with which this record ends the horizon ('' if it goes on)
-- Returns {"committed" or "found", record, "1" if it is published, the number of the domain's commits}, or one word, and
-- then nothing was written:
-- "unrecovered", "behind" (another commit sequence or state), "sealed" (the day is sealed), "replaced" (the day is the
-- next policy's), "unclaimed" (Redis lacks the transition to this policy); "damaged", "overflow": see staging.lua.
local keys = {
  releases = KEYS[1], published = KEYS[2], ledger = KEYS[3], dates = KEYS[6], recovery = KEYS[7],
  successors = KEYS[9], last = KEYS[10], sequences = KEYS[11], sealed = KEYS[12], unsealed = KEYS[13],
}
local id, name, date = ARGV[1], ARGV[2], ARGV[3]
local answer = reject_or_find(keys, id, name, date, ARGV[13], ARGV[15], ARGV[16], ARGV[17], ARGV[18], ARGV[19])
if answer then return answer end
local last = #KEYS > 13 and #ARGV - 5 or #ARGV
local horizon, cell, digest, state, closes = unpack(ARGV, last + 1)
if horizon and state ~= '' and not follows(KEYS[14], KEYS[16], horizon, cell, digest) then return {'behind'} end

-- Read in one command the fields that are used one by one below.
prefetch(KEYS[3], {
  'cost', 'limit', 'sequence', 'cap:' .. name, 'commits:' .. name, 'cost:' .. name, 'epsilon:' .. name, 'releases:' .. name,
  'reserved:' .. name, 'fineness:' .. name .. ':' .. ARGV[14],
})
prefetch(KEYS[8], {'limit', 'spent'})

-- Before the day's first release, whether or not it is charged.
local lacks_required = false
for i = 20, last, 4 do
  reserve(KEYS[3], KEYS[8], name, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[7], ARGV[8], ARGV[i + 3] == 'spent')
  if ARGV[i + 3] == 'required' and places_of(KEYS[3], name, ARGV[i]) == 0 then lacks_required = true end
end

local place, charge, head, tail = ARGV[4], amount(ARGV[5], KEYS[4]), ARGV[9], ARGV[10]
if lacks_required then
  head, tail = ARGV[11], ARGV[12]
elseif ZERO < charge then
  local before, levels = get(KEYS[4], place), levels_in(KEYS[5])
  if before then levels[before] = (levels[before] or 0) - 1 end
  local after = digits_of(amount(before or '0', KEYS[4]) + charge)
  levels[after] = (levels[after] or 0) + 1
  local cost = cost_of_day(KEYS[3], name, levels, tonumber(ARGV[6]))
  local added = cost - get_amount(KEYS[3], 'cost:' .. name)
  if not has_room(KEYS[3], KEYS[8], added, ARGV[7], ARGV[8]) then
    head, tail = ARGV[11], ARGV[12]
  else
    book(KEYS[4], KEYS[5], place, charge)
    set(KEYS[3], 'cap:' .. name, ARGV[6])
    set_policy_cost(KEYS[3], KEYS[8], name, cost)
    lower_limit(KEYS[3], ARGV[7])
    lower_limit(KEYS[8], ARGV[8])
    increase(KEYS[3], 'releases:' .. name, 1)
    add_amount(KEYS[3], 'epsilon:' .. name, charge)
    increase(KEYS[3], 'fineness:' .. name .. ':' .. ARGV[14], 1)
  end
end
if horizon then
  if lacks_required then closes = 'budget_exhausted' end
  if closes ~= '' then
    close_horizon(KEYS[16], horizon, closes)
  elseif state ~= '' then
    store_state(KEYS[14], KEYS[15], KEYS[16], horizon, cell, id, state)
  end
end
return write_record(keys, id, name, date, head, tail, ARGV[17])
