-- Reads and staged writes: a script that follows this part writes all of its changes or none.
-- It first computes all changes and calls `write_all(ANSWER)`, which writes them and returns the answer. If a key has a
-- value that hatcast did not write, or a number would not be exact, it writes nothing and returns {word, key} instead.
-- `write_all` only runs commands that cannot fail: the type of each key was checked, and Redis adds up no number.
local EXACT = 2^53  -- a double below it is exact
local rejection
local is_ours, hashes, strings, removed = {}, {}, {}, {}
local hash_keys, string_keys = {}, {}  -- in the order of their first change

-- Reject the script's writes, with one word and the key at fault. The first reason counts.
local function reject(word, key) rejection = rejection or {word, key} end

local function text(number) return string.format('%.0f', number) end

-- Run a command that reads a key; false if the key is of another type, which the key's first command checks.
local function run_read(command, key, ...)
  if is_ours[key] then return redis.call(command, key, ...) end
  if is_ours[key] == false then return false end
  local found = redis.pcall(command, key, ...)
  is_ours[key] = not (type(found) == 'table' and found.err)
  if is_ours[key] then return found end
  if not string.find(found.err, 'WRONGTYPE', 1, true) then error(found.err) end
  reject('damaged', key)
  return false
end

local function hash_of(key)
  if not hashes[key] then hashes[key] = {known = {}, staged = {}, fields = {}} end
  return hashes[key]
end

-- Return a field of a hash, with staged changes; false if there is none.
local function get(key, field)
  local hash = hash_of(key)
  if hash.known[field] == nil then hash.known[field] = run_read('HGET', key, field) end
  return hash.known[field]
end

-- Return all fields of a hash, with staged changes: field -> text, or false if deleted.
local function fields_of(key)
  local hash = hash_of(key)
  if not hash.whole then
    local flat = run_read('HGETALL', key) or {}
    for i = 1, #flat, 2 do
      if hash.known[flat[i]] == nil then hash.known[flat[i]] = flat[i + 1] end
    end
    hash.whole = true
  end
  return hash.known
end

-- Stage a field of a hash; false deletes it.
local function set(key, field, value)
  local hash = hash_of(key)
  if not hash.staged[field] then
    if #hash.fields == 0 then hash_keys[#hash_keys + 1] = key end
    hash.staged[field] = true
    hash.fields[#hash.fields + 1] = field
  end
  hash.known[field] = value
end

-- Parse an integer.
local function parse_integer(digits, key)
  local number = string.match(digits, '^%-?%d+$') and tonumber(digits)
  if number and math.abs(number) < EXACT then return number end
  reject(number and 'overflow' or 'damaged', key)
  return 0
end

local function get_number(key, field) return parse_integer(get(key, field) or '0', key) end

-- Stage an integer field.
local function set_number(key, field, value)
  if not (math.abs(value) < EXACT) then reject('overflow', key) end
  set(key, field, text(value))
end

-- Add to an integer field, and return the sum.
local function increase(key, field, more)
  local sum = get_number(key, field) + more
  set_number(key, field, sum)
  return sum
end

-- Return a string; false if there is none.
local function get_string(key) return run_read('GET', key) end

-- Stage a string, which replaces a key of any type.
local function set_string(key, value)
  if strings[key] == nil then string_keys[#string_keys + 1] = key end
  strings[key] = value
end

-- Stage the deletion of a key, after all writes.
local function remove(key) removed[#removed + 1] = key end

-- Write all staged changes and return the answer; if rejected, write nothing and return the reason.
-- What makes room deletes first: a full Redis refuses a script whose first write needs memory, and no later one.
local function write_all(answer, makes_room)
  for _, key in ipairs(hash_keys) do  -- HLEN fails on another type; TYPE the ACL of hatcast's users may not allow
    if is_ours[key] == nil then run_read('HLEN', key) end
  end
  if rejection then return rejection end
  local function free()
    for _, key in ipairs(hash_keys) do
      for _, field in ipairs(hashes[key].fields) do
        if not hashes[key].known[field] then redis.call('HDEL', key, field) end
      end
    end
    for _, key in ipairs(removed) do redis.call('DEL', key) end
  end
  if makes_room then free() end
  for _, key in ipairs(hash_keys) do
    local hash, parts = hashes[key], {}
    for _, field in ipairs(hash.fields) do
      local value = hash.known[field]
      if value then parts[#parts + 1], parts[#parts + 2] = field, value end
      if #parts >= 4000 then
        redis.call('HSET', key, unpack(parts))
        parts = {}
      end
    end
    if #parts > 0 then redis.call('HSET', key, unpack(parts)) end
  end
  for _, key in ipairs(string_keys) do redis.call('SET', key, strings[key]) end
  if not makes_room then free() end
  return answer
end
