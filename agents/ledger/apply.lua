-- Apply changes of a ledger if all conditions hold, whole or not at all.
-- KEYS  the keys that are compared or changed; ARGV  steps, each: what, the key's number, how many values follow, and these:
--       'same' field value ... (value '' for none, else after a '='); 'least' field number ...; 'set' field value ...;
--       'gone' field ...; 'join' member ...; 'leave' member ...; 'add' field number ...; 'raise' field value ...
--       Key 0 is this server: 'run_id' and 'replid'. All conditions come before the first change.
-- Returns "done"; "stale" if a condition does not hold, or {"damaged", key}: then nothing was written.
local EXACT, STEP, at = 2^53, 4000, 1
local WRITES = {set = 'HSET', gone = 'HDEL', join = 'SADD', leave = 'SREM'}
local of_set, writes = {join = true, leave = true}, {}

local function stored(key, field)
  if key > 0 then return redis.call('HGET', KEYS[key], field) end
  if field == 'run_id' then return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') end
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or ''
end

local function number(digits)
  local value = string.match(digits or '0', '^%d+$') and tonumber(digits or '0')
  return value and value < EXACT and value or nil
end

while at <= #ARGV do
  local what, key, size = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local first, last = at + 3, at + 2 + size
  at = last + 1
  if what ~= 'same' then
    local held = redis.pcall(of_set[what] and 'SCARD' or 'HLEN', KEYS[key])
    if type(held) == 'table' then return {'damaged', KEYS[key]} end
  end
  if WRITES[what] then
    for from = first, last, STEP do
      writes[#writes + 1] = {WRITES[what], KEYS[key], from, math.min(from + STEP - 1, last)}
    end
  else
    for i = first, last, 2 do
      local field, value, known = ARGV[i], ARGV[i + 1], stored(key, ARGV[i])
      if what == 'same' then
        if (known and '=' .. known or '') ~= value then return 'stale' end
      elseif what == 'raise' then
        if not known or #known < #value or (#known == #value and known < value) then
          writes[#writes + 1] = {'HSET', KEYS[key], i, i + 1}
        end
      else
        local before = number(known)
        if not before then return {'damaged', KEYS[key]} end
        if what == 'least' then
          if before < tonumber(value) then return 'stale' end
        else
          local after = before + tonumber(value)
          if after < 0 or after >= EXACT then return {'damaged', KEYS[key]} end
          writes[#writes + 1] = {'HSET', KEYS[key], field, string.format('%.0f', after)}
        end
      end
    end
  end
end
for _, write in ipairs(writes) do
  if type(write[3]) == 'number' then
    redis.call(write[1], write[2], unpack(ARGV, write[3], write[4]))
  else
    redis.call(unpack(write))
  end
end
return 'done'
