-- What the scripts that book charges share: it stands before each of them.    [stream/accounting.py]
-- Numbers here are doubles: exact up to 9e6 epsilon, far beyond any policy that still hides something.
local function text(number) return string.format('%.0f', number) end

-- e -> how many cells and slots have it, of one policy and date.
local function levels_in(key)
  local levels, flat = {}, redis.call('HGETALL', key)
  for i = 1, #flat, 2 do
    local level = tonumber(flat[i])
    levels[level] = (levels[level] or 0) + tonumber(flat[i + 1])
  end
  return levels
end

-- The sum of the `cap` largest e; of all of them while the cap is not known.
local function cost_of(levels, cap)
  local list, cost, left = {}, 0, tonumber(cap) or math.huge
  for level in pairs(levels) do list[#list + 1] = level end
  table.sort(list, function(a, b) return a > b end)
  for _, level in ipairs(list) do
    local taken = math.min(left, levels[level])
    cost, left = cost + taken * level, left - taken
  end
  return cost
end

-- Another charge on a place, in the stored costs and levels. Texts keep it exact beyond a double.
local function book(costs, levels, place, charge)
  local before = redis.call('HGET', costs, place)
  redis.call('HINCRBY', costs, place, charge)
  if before and redis.call('HINCRBY', levels, before, -1) == 0 then redis.call('HDEL', levels, before) end
  redis.call('HINCRBY', levels, redis.call('HGET', costs, place), 1)
end

-- A policy has a record of this date.
local function later(last, name, date)
  local known = redis.call('HGET', last, name)
  if not known or known < date then redis.call('HSET', last, name, date) end
end

-- One charge less on a place.
local function unbook(costs, levels, place, charge)
  local before = redis.call('HGET', costs, place)
  if redis.call('HINCRBY', levels, before, -1) == 0 then redis.call('HDEL', levels, before) end
  redis.call('HINCRBY', costs, place, '-' .. charge)
  local after = redis.call('HGET', costs, place)
  if after == '0' then redis.call('HDEL', costs, place) else redis.call('HINCRBY', levels, after, 1) end
end

-- Many charges, each {place, charge}: of places that had none, the levels change together.
local function book_all(costs, levels, charges)
  local first, again = {}, {}
  for _, one in ipairs(charges) do
    if redis.call('HSETNX', costs, one[1], one[2]) == 1 then
      first[one[2]] = (first[one[2]] or 0) + 1
    else
      again[#again + 1] = one
    end
  end
  for charge, places in pairs(first) do redis.call('HINCRBY', levels, charge, places) end
  for _, one in ipairs(again) do book(costs, levels, one[1], one[2]) end
end

-- Adds number * charge to a stored sum: at once where a double has the product exactly.
local function multiply(key, field, charge, number)
  if number * tonumber(charge) < 2^53 then
    redis.call('HINCRBY', key, field, text(number * tonumber(charge)))
  else
    for _ = 1, number do redis.call('HINCRBY', key, field, charge) end
  end
end

-- What a policy's part of the day costs a user: the `cap` largest charges of HATs, and what its queries have reserved.
local function cost_of_day(ledger, name, levels, cap)
  return cost_of(levels, cap) + tonumber(redis.call('HGET', ledger, 'reserved:' .. name) or '0')
end

-- Whether day and domain may cost so much more, under a policy's limits and under those of all that have charged.
local function has_room(ledger, total, grown, day_limit, total_limit)
  local function passes(key, field, own)
    local stored = redis.call('HMGET', key, field, 'limit')
    local after = tonumber(stored[1] or '0') + grown
    return after > (tonumber(own) or math.huge) or after > (tonumber(stored[2] or '') or math.huge)
  end
  return not (passes(ledger, 'cost', day_limit) or passes(total, 'spent', total_limit))
end

-- A policy's part of the day costs `cost` from now on; the day and the domain's total follow in the same step.
local function settle(ledger, total, name, cost)
  local stored = redis.call('HMGET', ledger, 'cost:' .. name, 'cost')
  local grown = cost - tonumber(stored[1] or '0')
  if grown ~= 0 then
    redis.call('HSET', ledger, 'cost:' .. name, text(cost), 'cost', text(tonumber(stored[2] or '0') + grown))
    redis.call('HSET', total, 'spent', text(tonumber(redis.call('HGET', total, 'spent') or '0') + grown))
  end
end

-- Of a policy that charged: the least limit of a day, and of all days, binds.
local function lower(key, limit)
  local stored = tonumber(redis.call('HGET', key, 'limit') or '')
  if tonumber(limit) and not (stored and stored <= tonumber(limit)) then redis.call('HSET', key, 'limit', limit) end
end

-- How many places a query has on a day, and how many it has from now on, each for `epsilon`.
local function places_of(ledger, name, query)
  return tonumber(string.match(redis.call('HGET', ledger, 'query:' .. name .. ':' .. query) or '', '^(%d+)x'))
end

local function set_places(ledger, total, name, query, places, epsilon)
  local more = (places - (places_of(ledger, name, query) or 0)) * tonumber(epsilon)
  redis.call('HSET', ledger, 'query:' .. name .. ':' .. query, text(places) .. 'x' .. epsilon)
  if more > 0 then
    redis.call('HINCRBY', ledger, 'reserved:' .. name, text(more))
    settle(ledger, total, name, tonumber(redis.call('HGET', ledger, 'cost:' .. name) or '0') + more)
  end
end

-- A query reads this day: settle, once and for good, whether the day has room for it. 1 if that was open until now.
-- What is spent already needs no room.
local function reserve(ledger, total, name, query, places, epsilon, day_limit, total_limit, is_spent)
  if places_of(ledger, name, query) then return 0 end
  places = tonumber(places)
  if is_spent or has_room(ledger, total, places * tonumber(epsilon), day_limit, total_limit) then
    set_places(ledger, total, name, query, places, epsilon)
    lower(ledger, day_limit)
    lower(total, total_limit)
  else
    set_places(ledger, total, name, query, 0, epsilon)
  end
  return 1
end
