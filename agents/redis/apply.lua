-- Apply changes of a ledger if all conditions hold, whole or not at all.
-- KEYS  the keys that are compared or changed; ARGV  steps, each: what, the key's number, how many values follow, and these:
--       'same' field value ... (value '' for none, else after a '='); 'in' member ...; 'out' member ...; 'least' field
--       number ...; 'set' field value ...; 'gone' field ...; 'join' member ...; 'leave' member ...; 'add' field number ...;
--       'raise' field value ...; 'delete'. Key 0 is this server: 'run_id' and 'replid'.
-- Returns 'done'; 'stale' if a condition does not hold, or {'damaged' or 'overflow', key}: then nothing was written.
local EXACT, STEP, at = 2^53, 4000, 1
local WRITES = {set = 'HSET', gone = 'HDEL', join = 'SADD', leave = 'SREM'}
local OF_SET = {join = true, leave = true, ['in'] = true, out = true}
local frees, writes, removes = {}, {}, {}

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
  if key > 0 and what ~= 'delete' then
    local held = redis.pcall(OF_SET[what] and 'SCARD' or 'HLEN', KEYS[key])
    if type(held) == 'table' then
      if not string.find(held.err, 'WRONGTYPE', 1, true) then error(held.err) end
      return {'damaged', KEYS[key]}
    end
  end
  if what == 'delete' then
    frees[#frees + 1] = {'UNLINK', KEYS[key]}
  elseif WRITES[what] then
    local list = (what == 'set' or what == 'join') and writes or removes
    for from = first, last, STEP do
      list[#list + 1] = {WRITES[what], KEYS[key], from, math.min(from + STEP - 1, last)}
    end
  elseif OF_SET[what] then
    for i = first, last do
      if redis.call('SISMEMBER', KEYS[key], ARGV[i]) ~= (what == 'in' and 1 or 0) then return 'stale' end
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
          if after < 0 then return {'damaged', KEYS[key]} end
          if after >= EXACT then return {'overflow', KEYS[key]} end
          writes[#writes + 1] = {'HSET', KEYS[key], field, string.format('%.0f', after)}
        end
      end
    end
  end
end
-- A full Redis refuses a script whose first write needs memory, and no later one: so what frees whole keys comes first.
for _, list in ipairs({frees, writes, removes}) do
  for _, write in ipairs(list) do
    if type(write[3]) == 'number' then
      redis.call(write[1], write[2], unpack(ARGV, write[3], write[4]))
    else
      redis.call(unpack(write))
    end
  end
end
return 'done'
