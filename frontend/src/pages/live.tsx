// page: {"order": 160, "group": "tools", "icon": "live", "en": "Live", "zh": "实时"}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
