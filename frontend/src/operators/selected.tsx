/** The selected operator. */
import { token } from "../colors";
import { context, fetchTable, type TableName } from "../data";
import { familyNames, familyOf } from "../families";
import { Chip, Swatch } from "../parts/basics";
import type { Which } from "../parts/callers";
import { Calls } from "../parts/calls";
import { Drawer } from "../parts/drawer";
import { shapeText, typeText } from "../parts/shapes";
import { go, param } from "../state";
import { Table } from "../table";
import { useEffect, useMemo, useState } from "preact/hooks";

/** The drawer of the row in the address. */
export function SelectedOperator({ table, device }: { table: Table; device: string }) {
  const sel = param("sel");
  const parts = useMemo(() => {
    try {
      return sel ? (JSON.parse(sel) as (string | null)[]) : null;
    } catch {
      return null;
    }
  }, [sel]);
  const wantShapes = parts !== null && parts.length > 3;
  const [more, setMore] = useState<{ key: string; table: Table } | null>(null);
  const wanted =
    parts === null || (parts.length === 1 && table.has("type") && !table.has("name"))
      ? null
      : wantShapes
        ? "shapes"
        : parts.length === 1
          ? "types"
          : "operators";
  const key = `${wanted} ${device} ${JSON.stringify(context())}`;
  useEffect(() => {
    if (!wanted || more?.key === key) return;
    const [name, params] =
      wanted === "types"
        ? ["operator_types", {}]
        : ["operators", wanted === "shapes" ? { by_shape: true, device } : { device }];
    void fetchTable(name as TableName, params as Record<string, string>).then(
      (table) => setMore({ key, table }),
      () => undefined,
    );
  }, [key, wanted]);
  if (!parts || !parts.length) return null;
  const of = wanted ? (more?.key === key ? more.table : null) : table;
  if (!of) return null;
  const columns = ["type", "name", "scope", "shapes", "dtypes"].slice(0, parts.length);
  const [row] = of.where(
    (row) =>
      columns.every((name, at) => of.str(name)[row] === parts[at]) &&
      (!of.has("device") || of.str("device")[row] === device),
  );
  if (row === undefined) return null;
  const [type, name, scope, shapes, dtypes] = parts;
  const which: Which =
    parts.length === 1 ? { device, type: type! } : { device, type: type ?? undefined, operator: name! };
  const kind = familyOf(type, name ?? null);
  const shadeOf = `var(${token(kind)})`;
  const keep =
    parts.length === 1
      ? undefined
      : (calls: Table, at: number) =>
          calls.str("scope")[at] === scope &&
          (!wantShapes || (calls.str("shapes")[at] === shapes && calls.str("dtypes")[at] === dtypes));
  const host = device === "cpu";
  return (
    <Drawer
      key={sel}
      onClose={() => go({ params: { sel: null } })}
      title={
        <>
          <Swatch color={shadeOf} />
          <b class="mono cut" title={name ?? type ?? ""}>
            {name ?? type}
          </b>
        </>
      }
    >
      <Calls
        which={which}
        keep={keep}
        of={sel!}
        color={shadeOf}
        figures={{
          total: of.num(host ? "self_ns" : "total_ns")[row],
          calls: of.num("calls")[row],
          mean: of.num("avg_ns")[row],
          share: of.num("share")[row],
        }}
        chips={
          <>
            <Chip>{familyNames()[kind]}</Chip>
            {type !== name && name && (
              <Chip>
                <span class="mono">{type}</span>
              </Chip>
            )}
            {scope && (
              <Chip title={scope}>
                <span class="mono cut">{scope}</span>
              </Chip>
            )}
            {shapes && (
              <Chip title={shapes}>
                <span class="mono cut">{shapeText(shapes)}</span>
              </Chip>
            )}
            {dtypes && <Chip title={dtypes}>{typeText(dtypes)}</Chip>}
          </>
        }
      />
    </Drawer>
  );
}
