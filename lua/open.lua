-- The first part of every script: its arguments in general, the clock, the deadline.
--
-- A script is made for one *shape*, the list of a policy's algorithms:
--   open.lua, `arguments` of each algorithm in turn, join.lua, `check` of each, join.lua,
--   then, if any request passes, `prepare` and `write` of each, and `reply` of each
-- with $N = the place of the charge (1, 2, ...), $A = the place of its first argument, $CHARGED = for how many requests it
-- is charged, `$include NAME` = that piece of shared.lua, and in open.lua $KEYS and $ARGV = how many of each this shape takes,
-- $NAMES and $VALUES = the `numbers` of each algorithm and where they stand, $FIRST = where those of each charge begin.
--
-- KEYS   one a charge, all different, in one Cluster slot
-- ARGV   1 not-after: milliseconds of this server's clock after which nothing may be counted any more
--        2 n: how many equal requests wait, at least 1
--        3.. each algorithm's `numbers`, see there
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
--
-- Calls are what Lua is slow at. Text of digits becomes a number by arithmetic (`x + 0`; tonumber reads it twice), and
-- floor(x / y) is (x - x % y) / y, as exact for whole numbers below 2^53. Only what is used often has a local name.
local KEYS, ARGV, call, find = KEYS, ARGV, redis.call, string.find
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = (now_us - now_us % 1000) / 1000
if #KEYS ~= $KEYS or #ARGV ~= $ARGV then
  return {-2, now_us, 0}
end
-- All numbers at once. Text that is none is an error here, and only then is each looked at to tell whose it was.
local are_numbers, not_after, n$NAMES = pcall(function(ARGV)
  return ARGV[1] + 0, ARGV[2] == '1' and 1 or ARGV[2] + 0$VALUES
end, ARGV)
if not are_numbers then
  local at, place = 1, 0
  while tonumber(ARGV[at]) do at = at + 1 end
  for charge, first in ipairs({$FIRST}) do
    if at >= first then place = charge end
  end
  return {-2, now_us, place}
end
if not (not_after >= 0 and n >= 1 and n <= 1000000 and n % 1 == 0) then
  return {-2, now_us, 0}
end
