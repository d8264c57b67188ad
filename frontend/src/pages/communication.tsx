// page: {"order": 110, "group": "cluster", "icon": "communication", "en": "Communication", "zh": "通信", "needs": ["communication", "links", "ranks"]}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
