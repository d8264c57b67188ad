import { expect, test } from "vitest";
import { fill } from "./template";

test("values replace their names", () => {
  expect(fill("{step} takes {time}", { step: "Step 3", time: "5 ms" })).toBe("Step 3 takes 5 ms");
  expect(fill("{absent}", {})).toBe("–");
});

test("a value of 1 chooses the singular", () => {
  expect(fill("{count} [row|rows]", { count: 1 })).toBe("1 row");
  expect(fill("{count} [row|rows]", { count: 0 })).toBe("0 rows");
  expect(fill("{count} [row|rows]", { count: 99990 })).toBe("99,990 rows");
});

test("Chinese has no space around Chinese values", () => {
  expect(fill("主要是 {why}。", { why: "等待" })).toBe("主要是等待。");
  expect(fill("共 {count} 个", { count: 5 })).toBe("共 5 个");
});
