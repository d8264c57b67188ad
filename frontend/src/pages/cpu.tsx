// page: {"order": 90, "group": "resources", "icon": "cpu", "en": "CPU", "zh": "CPU", "needs": ["cpu", "process"]}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
