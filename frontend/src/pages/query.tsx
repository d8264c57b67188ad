// page: {"order": 140, "group": "tools", "icon": "query", "en": "Query", "zh": "查询"}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
