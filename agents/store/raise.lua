-- Lift a day's ledger number to at least one that was published.
-- KEYS 1 ledger; ARGV 1 the number
if tonumber(ARGV[1]) > tonumber(redis.call('HGET', KEYS[1], 'sequence') or '0') then
  redis.call('HSET', KEYS[1], 'sequence', ARGV[1])
end
return 'OK'
