-- Read a day's ledger at one time. KEYS  1 ledger, 2 total, then the levels of policies; returns each hash
local found = {}
for i, key in ipairs(KEYS) do found[i] = redis.call('HGETALL', key) end
return found
