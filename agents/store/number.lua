-- Lift a day's ledger number to all that its policies have numbered.    [design 4, Proven]
-- A release may have been sent without its budget record, while commits with smaller numbers were lost unsent.
-- KEYS  1 ledger (of one domain and date)
local numbered, ledger = 0, redis.call('HGETALL', KEYS[1])
for i = 1, #ledger, 2 do
  if string.sub(ledger[i], 1, 8) == 'commits:' then numbered = numbered + tonumber(ledger[i + 1]) end
end
if numbered > tonumber(redis.call('HGET', KEYS[1], 'sequence') or '0') then
  redis.call('HSET', KEYS[1], 'sequence', string.format('%.0f', numbered))
end
return 'OK'
