-- Token bucket: `burst` tokens at most, `rate` more every `per`, each request takes its cost.
-- The Rust twin is src/decision/token_bucket.rs.
--
-- State  string `level:time`: the level in 1/per of a token (never reduced, so that it keeps its meaning when rate or burst
--        change) at that millisecond; it expires when the bucket would be full, so an absent key is a full bucket
-- ARGV   $A + 0 rate    tokens every per, 1 .. 1,000,000,000
--        $A + 1 per     milliseconds, 1 .. 31,622,400,000 (366 days)
--        $A + 2 burst   tokens, 1 .. 1,000,000,000, with burst * per <= 2^53 - 1 and full within 366 days
--        $A + 3 cost    tokens per request, at least 1

--- numbers
rate, per, burst, cost

--- arguments
local capacity_$N = burst_$N * per_$N
if not (rate_$N >= 1 and rate_$N <= 1000000000 and per_$N >= 1 and per_$N <= 31622400000
    and burst_$N >= 1 and burst_$N <= 1000000000 and cost_$N >= 1 and cost_$N <= 1000000000
    and rate_$N % 1 + per_$N % 1 + burst_$N % 1 + cost_$N % 1 == 0
    and capacity_$N <= 9007199254740991 and math.ceil(capacity_$N / rate_$N) <= 31622400000) then
  return {-2, now_us, $N}
end

--- check
local at_$N, level_$N = now, capacity_$N
$include string
if stored_$N then
  if #stored_$N > 30 then return {-5, now_us, $N} end
  local level, time = string.match(stored_$N, '^(%d+):(%d+)$')
  if not level or #level > 16 or #time > 13 or find(stored_$N, '^0%d') or find(stored_$N, ':0%d') then
    return {-5, now_us, $N}
  end
  level, time = tonumber(level), tonumber(time)
  if level > 9007199254740991 then return {-5, now_us, $N} end
  if time > now + 1000 then return {-7, now_us, $N} end
  -- The rate may have changed since, so the expiry is only bounded: not before its time, nor beyond the longest fill.
  if expires_$N < time or expires_$N > time + 31622400000 then return {-6, now_us, $N} end
  if level > capacity_$N then level = capacity_$N end
  if time > now then at_$N = time end
  -- A key that lingers past its end is a full bucket, like none at all, whatever today's rate and burst would make of it.
  -- Compared before it is multiplied, so that no idle time is too long.
  if expires_$N > now and at_$N - time < math.ceil((capacity_$N - level) / rate_$N) then
    level_$N = level + (at_$N - time) * rate_$N
  end
end
local need_$N = cost_$N * per_$N
-- In requests times their cost, so that the shared piece divides it back.
local room_$N = 0
if cost_$N <= burst_$N then room_$N = math.floor(level_$N / need_$N) * cost_$N end
$include fits

--- prepare
local after_$N = level_$N - $CHARGED * need_$N
local state_$N = string.format('%d:%d', after_$N, at_$N)
local ends_$N = string.format('%d', at_$N + math.ceil((capacity_$N - after_$N) / rate_$N))

--- write
call('SET', KEYS[$N], state_$N, 'PXAT', ends_$N)
level_$N = after_$N

--- reply
local remaining_$N = math.floor(level_$N / per_$N)
local retry_$N = -1
if cost_$N <= burst_$N then
  retry_$N = need_$N > level_$N and math.ceil((need_$N - level_$N) / rate_$N) or 0
end
local reset_$N = math.ceil((capacity_$N - level_$N) / rate_$N)
