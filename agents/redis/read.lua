-- Read rows of a ledger, all of one moment.
-- KEYS  the keys to read; ARGV  1 MessagePack: whether to read this server too, and of each key: whether it is a set, and its
--       fields or members to read (false for all)
-- Returns {run_id and replication id of this server, or '', then of each key: values or marks in order; fields and values,
-- or members, if all were asked for; nil of a key of another type}. A field '#' is the number of fields.
local STEP = 4000  -- Lua unpacks 8,000 values at most
local of_server, of_keys = unpack(cmsgpack.unpack(ARGV[1]))
local found = {'', ''}
if of_server then
  found[1] = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  found[2] = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or ''
end
for k, asked in ipairs(of_keys) do
  local is_set, fields, answer = asked[1], asked[2], {}
  if not fields then
    answer = redis.pcall(is_set and 'SMEMBERS' or 'HGETALL', KEYS[k])
  else
    for from = 1, #fields, STEP do
      local last = math.min(from + STEP - 1, #fields)
      local part = redis.pcall(is_set and 'SMISMEMBER' or 'HMGET', KEYS[k], unpack(fields, from, last))
      if part.err then
        answer = part
        break
      end
      for i, value in ipairs(part) do
        answer[#answer + 1] = fields[from + i - 1] == '#' and tostring(redis.call('HLEN', KEYS[k])) or value
      end
    end
  end
  if answer.err and not string.find(answer.err, 'WRONGTYPE', 1, true) then error(answer.err) end
  found[k + 2] = not answer.err and answer
end
return found
