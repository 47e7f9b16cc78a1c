"""Prints the profit of 200 simulated days of a shop, run as `shop.json` says; the same on every run."""

import json
from pathlib import Path


def profit(plan):
    stock, coming, money, age, state = 20.0, [], 0.0, 0, 5
    for _ in range(200):
        state = (state * 1103515245 + 12345) % 2**31
        arrived = sum(size for days, size in coming if days == 0)
        coming = [(days - 1, size) for days, size in coming if days > 0]
        stock, age = stock + arrived, 0 if arrived else age + 1
        price = plan["price"] * (0.8 if age > plan["discount_after_days"] else 1.0)
        wanted = max(0.0, 16 - price + (state >> 16) % 5)
        sold = min(stock, wanted)
        money += sold * price - stock * 0.15 - (wanted - sold) * 0.5
        stock -= sold
        if stock < plan["order_when_below"] and not coming:
            coming.append((2, plan["order_size"]))
            money -= 10 + 4 * plan["order_size"]
    return round(money, 3)


chosen = json.loads(Path("shop.json").read_text())
if any(value <= 0 or value > 200 for value in chosen.values()):
    raise SystemExit("a shop cannot be run like that")
print(profit(chosen))
