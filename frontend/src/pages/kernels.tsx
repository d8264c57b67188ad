// page: {"order": 50, "group": "performance", "icon": "kernels", "en": "Kernels", "zh": "内核", "needs": ["kernel", "copy", "set"]}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
