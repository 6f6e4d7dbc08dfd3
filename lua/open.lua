-- The first part of every script: its arguments in general, the clock, the deadline.
--
-- A script is made for one *shape*, the list of a policy's algorithms:
--   open.lua, `arguments` of each algorithm in turn, join.lua, `check` of each, join.lua,
--   then, if any request passes, `prepare` and `write` of each, and `reply` of each
-- with $N = the place of the charge (1, 2, ...), $A = the place of its first argument, $CHARGED = for how many requests it
-- is charged, `$include NAME` = that piece of shared.lua, and in open.lua $KEYS and $ARGV = how many of each this shape takes.
--
-- KEYS   one a charge, all different, in one Cluster slot
-- ARGV   1 not-after: milliseconds of this server's clock after which nothing may be counted any more
--        2 n: how many equal requests wait, at least 1
--        3.. each algorithm's own, see there
-- Reply  integers: requests admitted (0..n), store time in us, then of each charge, after what was admitted:
--        remaining units, retry_after_ms (0 = now, -1 = never), reset_after_ms, and of a shadow charge also the requests
--        that it was charged for
--        or: a negative reason, store time in us, the place of the charge at fault (0 = none)
--          -1 late                   -3 wrong type             -6 an expiry that it cannot have
--          -2 bad arguments          -4 no expiry              -7 ahead of this server's clock
--                                    -5 not what this algorithm writes
--
-- Everything is read and checked, and every argument of a write computed, before the first write: a script that
-- writes and then errors keeps its write. A refusal and a failure write nothing.
--
-- The header line above this text (Redis 7.0, Valkey 7.2) makes a replica, a full or a write-refusing node answer
-- an error before the first line runs, so that it can never answer "limited" from stale data.
local call, pcall, find, match, format = redis.call, redis.pcall, string.find, string.match, string.format
local floor, ceil, min = math.floor, math.ceil, math.min
local time = call('TIME')
local seconds, micros = tonumber(time[1]), tonumber(time[2])
local now_us = seconds * 1000000 + micros
local now = seconds * 1000 + floor(micros / 1000)
local not_after, n = tonumber(ARGV[1]), tonumber(ARGV[2])
if #KEYS ~= $KEYS or #ARGV ~= $ARGV or not (not_after and n and n >= 1 and n <= 1000000 and n % 1 == 0) then
  return {-2, now_us, 0}
end
