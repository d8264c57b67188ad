// page: {"order": 130, "group": "tools", "icon": "compare", "en": "Compare", "zh": "对比"}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
